/* Preloaded into the mpirun of a job that stays on one host: what would listen on every interface of the machine
   listens on the loopback alone, to the processes of the job alone, and to who says something. Open MPI has no setting
   for it, and waits in its one thread for the first words of each connection, to their last byte. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LAUNCHER "SOFTMESH_LAUNCHER_PID" /* of whom every process of the job descends */

static pid_t launcher; /* 0 where nobody said so: then who is of this user is of the job */

/* The processes that mpirun starts are not concerned: they get the variables as they were. On its way, mpirun becomes
   one program after another; the last one is the launcher of PRRTE, or of Open MPI 4. */
__attribute__((constructor)) static void leave_the_environment(void)
{
    if (strncmp(program_invocation_short_name, "prte", 4) != 0 && strncmp(program_invocation_short_name, "orte", 4) != 0)
        return;
    const char *all = getenv("LD_PRELOAD"), *of_launcher = getenv(LAUNCHER);
    const char *rest = all == NULL ? NULL : strchr(all, ':');
    if (rest != NULL)
        setenv("LD_PRELOAD", rest + 1, 1);
    else
        unsetenv("LD_PRELOAD");
    launcher = of_launcher == NULL ? 0 : atoi(of_launcher);
    unsetenv(LAUNCHER);
}

#define SILENCE_SECONDS 300 /* for which who connects may say nothing, unseen by mpirun */
#define MOST_SILENT 65535   /* of them, as far as the kernel lets so many wait */

static int is_of_internet(int descriptor, struct sockaddr_storage *own)
{
    socklen_t length = sizeof *own;
    return getsockname(descriptor, (struct sockaddr *)own, &length) == 0
        && (own->ss_family == AF_INET || own->ss_family == AF_INET6);
}

int listen(int descriptor, int backlog)
{
    struct sockaddr_storage own;
    int seconds = SILENCE_SECONDS;
    if (is_of_internet(descriptor, &own))
        setsockopt(descriptor, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
    return (int)syscall(SYS_listen, descriptor, MOST_SILENT > backlog ? MOST_SILENT : backlog);
}

/* An address as the kernel's table of connections writes it. */
static void write_address(const struct sockaddr_storage *address, char *text)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        sprintf(text, "%08X:%04X", four->sin_addr.s_addr, ntohs(four->sin_port));
        return;
    }
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    uint32_t words[4];
    memcpy(words, &six->sin6_addr, sizeof words);
    sprintf(text, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3], ntohs(six->sin6_port));
}

enum whose { OF_THE_JOB, OF_ANOTHER, UNKNOWN };

/* The user and the inode of the socket at the other end: the table has each end of a connection within this machine. */
static int look_up_other_end(int descriptor, unsigned *user, unsigned long *inode)
{
    struct sockaddr_storage own, other;
    socklen_t length = sizeof other;
    char here[48], there[48], line[512];
    if (!is_of_internet(descriptor, &own) || getpeername(descriptor, (struct sockaddr *)&other, &length) != 0)
        return 0;
    FILE *table = fopen(own.ss_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
    if (table == NULL)
        return 0;
    write_address(&own, here);
    write_address(&other, there);
    int is_found = 0;
    while (!is_found && fgets(line, sizeof line, table) != NULL) {
        char local[48], remote[48];
        is_found = sscanf(line, " %*d: %47s %47s %*s %*s %*s %*s %u %*s %lu", local, remote, user, inode) == 4
            && strcmp(local, there) == 0 && strcmp(remote, here) == 0;
    }
    fclose(table);
    return is_found;
}

static pid_t parent_of(pid_t process)
{
    char path[32], line[512];
    int parent = 0;
    sprintf(path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const char *name_end = fgets(line, sizeof line, file) == NULL ? NULL : strrchr(line, ')');
    if (name_end != NULL)
        sscanf(name_end, ") %*c %d", &parent);
    fclose(file);
    return parent;
}

static int descends_from_launcher(pid_t process)
{
    while (process > 1 && process != launcher)
        process = parent_of(process);
    return process == launcher;
}

/* Whether a process has that socket open; unknown if it does not let us look. */
static enum whose whose_is(unsigned long inode, pid_t process)
{
    char path[32], socket_name[48], target[48];
    sprintf(path, "/proc/%d/fd", (int)process);
    DIR *open_files = opendir(path);
    if (open_files == NULL)
        return errno == EACCES ? UNKNOWN : OF_ANOTHER;
    sprintf(socket_name, "socket:[%lu]", inode);
    enum whose found = OF_ANOTHER;
    const struct dirent *entry;
    while (found != OF_THE_JOB && (entry = readdir(open_files)) != NULL) {
        ssize_t length = readlinkat(dirfd(open_files), entry->d_name, target, sizeof target - 1);
        if (length > 0) {
            target[length] = '\0';
            found = strcmp(target, socket_name) == 0 ? OF_THE_JOB : OF_ANOTHER;
        }
    }
    closedir(open_files);
    return found;
}

/* Who has the socket open at the other end of a connection. */
static enum whose whose_other_end(int descriptor)
{
    unsigned user;
    unsigned long inode;
    if (!look_up_other_end(descriptor, &user, &inode))
        return UNKNOWN;
    if (user != geteuid() && user != 0)
        return OF_ANOTHER;
    DIR *processes = launcher == 0 ? NULL : opendir("/proc");
    if (processes == NULL)
        return UNKNOWN;
    enum whose found = OF_ANOTHER;
    const struct dirent *entry;
    while (found != OF_THE_JOB && (entry = readdir(processes)) != NULL) {
        pid_t process = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (process != 0 && descends_from_launcher(process)) {
            enum whose of_this = whose_is(inode, process);
            found = of_this == OF_ANOTHER ? found : of_this;
        }
    }
    closedir(processes);
    return found;
}

static int of_the_job(int descriptor)
{
    if (descriptor < 0 || whose_other_end(descriptor) != OF_ANOTHER)
        return descriptor;
    close(descriptor);
    errno = EAGAIN; /* there is nobody */
    return -1;
}

int accept(int descriptor, struct sockaddr *address, socklen_t *length)
{
    return of_the_job((int)syscall(SYS_accept4, descriptor, address, length, 0));
}

int accept4(int descriptor, struct sockaddr *address, socklen_t *length, int flags)
{
    return of_the_job((int)syscall(SYS_accept4, descriptor, address, length, flags));
}

int bind(int descriptor, const struct sockaddr *address, socklen_t length)
{
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM) {
        if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET) {
            struct sockaddr_in four;
            memcpy(&four, address, sizeof four);
            if (four.sin_addr.s_addr == htonl(INADDR_ANY)) {
                four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                return (int)syscall(SYS_bind, descriptor, &four, (socklen_t)sizeof four);
            }
        }
        if (length >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6) {
            struct sockaddr_in6 six;
            memcpy(&six, address, sizeof six);
            if (memcmp(&six.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0) {
                six.sin6_addr = in6addr_loopback;
                return (int)syscall(SYS_bind, descriptor, &six, (socklen_t)sizeof six);
            }
        }
    }
    return (int)syscall(SYS_bind, descriptor, address, length);
}

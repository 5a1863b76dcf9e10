/* Preloaded into the mpirun of a job that stays on one host: what would listen on every interface of the machine
   listens on the loopback alone. Open MPI has no setting for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The processes that mpirun starts are not concerned: they get the variable as it was. On its way, mpirun becomes one
   program after another; the last one is the launcher of PRRTE, or of Open MPI 4. */
__attribute__((constructor)) static void leave_the_environment(void)
{
    if (strncmp(program_invocation_short_name, "prte", 4) != 0 && strncmp(program_invocation_short_name, "orte", 4) != 0)
        return;
    const char *all = getenv("LD_PRELOAD");
    const char *rest = all == NULL ? NULL : strchr(all, ':');
    if (rest != NULL)
        setenv("LD_PRELOAD", rest + 1, 1);
    else
        unsetenv("LD_PRELOAD");
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

"""Texts and descriptors: JSON, descriptors and bindings that do not say what was meant."""

from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh.fabric.descriptors.loader import load_mesh_graph
from softmesh.light_metal.binary_format import packed

RAW = "An error of the parser, of a missing key or of recursion, with no word of which text it was."
TEXTS = [
    (ttnn.CoreCoord, '{"x": 1}', '{"x": 1, "y": 2}'),
    (ttnn.CoreRange, '{"start": [0, 0], "end": {}}', '{"start": {"x": 0, "y": 0}, "end": {"x": 1, "y": 1}}'),
    (ttnn.CoreRangeSet, '{"a": 1}', "[]"),
    (ttnn.ShardSpec, "[]", '{"grid": [], "shape": [32, 32], "orientation": 0}'),
    (ttnn.MemoryConfig, "[" * 100_000, '{"buffer_type": 0, "memory_layout": 0}'),
]
for kind, wrong_text, right_text in TEXTS:

    @mistake(
        Told.ERROR,
        f"{kind.__name__}.from_json(): not what to_json() wrote: ",
        symptom=RAW,
        mend="Read what to_json() of the same class wrote.",
    )
    def program(kind=kind, text=wrong_text):
        kind.from_json(text)

    program.__doc__ = f"A text that is no {kind.__name__}"

    @right
    def program(kind=kind, text=right_text):
        kind.from_json(text)

    program.__doc__ = f"A {kind.__name__} as it was written"


def descriptor(folder, name="M0", topology="device_topology"):
    path = folder / "mesh.textproto"
    path.write_text(f"""
mesh_descriptors {{
  name: "{name}" arch: WORMHOLE_B0
  {topology} {{ dims: [ 2, 4 ] }} host_topology {{ dims: [ 1, 1 ] }}
  channels {{ count: 2 }}
}}
top_level_instance {{ mesh {{ mesh_descriptor: "{name}" mesh_id: 0 }} }}
""")
    return path


@mistake(
    Told.ERROR,
    "MeshDescriptor has no field 'device_topolgy'; the runtime skips it in silence",
    symptom="The field is skipped in silence, and the mesh is another one than the file seems to say.",
    mend="Write the field that the message names.",
)
def a_field_that_is_misspelt(folder):
    load_mesh_graph(descriptor(folder, topology="device_topolgy"))


@right
def a_descriptor_of_one_mesh(folder):
    load_mesh_graph(descriptor(folder))


@mistake(
    Told.ERROR,
    "name 'M\\x1b[2J' has a control character",
    symptom="The terminal is cleared, or worse, when the name is printed.",
    mend="Use names that can be printed.",
)
def a_name_that_would_command_the_terminal(folder):
    load_mesh_graph(descriptor(folder, name="M\\033[2J"))


@right
def a_name_of_several_words(folder):
    load_mesh_graph(descriptor(folder, name="Mesh of two rows"))


ONE_MESH = """
mesh_descriptors {{
  name: "M" arch: {arch} device_topology {{ dims: [ {dims} ] }} host_topology {{ dims: [ {hosts} ] }}
  channels {{ count: 2 }}
}}
top_level_instance {{ mesh {{ mesh_descriptor: "{used}" mesh_id: 0 }} }}
"""


def one_mesh(folder, **fields):
    path = folder / "mesh.textproto"
    path.write_text(ONE_MESH.format(**{"arch": "WORMHOLE_B0", "dims": "2, 4", "hosts": "1, 1", "used": "M"} | fields))
    return load_mesh_graph(path)


for name, fields, words, mend in (
    ("dims in the millions", {"dims": "1000000, 1000000"}, "more than 1024 meshes or 16384 chips", "Smaller dims."),
    ("negative dims", {"dims": "-1, 4"}, "Device topology dimensions must be positive", "Dims of 1 and more."),
    ("a mesh nobody defined", {"used": "N"}, "Mesh descriptor N not found in instance", "A name that is defined."),
    (
        "hosts that do not divide the devices",
        {"hosts": "1, 3"},
        "Device topology dimensions must be divisible by host topology dimensions",
        "As many hosts along an axis as divide its devices.",
    ),
    ("chips of another age", {"arch": "GRAYSKULL"}, "Failed to parse MeshGraphDescriptor textproto", "WORMHOLE_B0."),
):

    @mistake(Told.ERROR, words, symptom="The control plane stops, or maps the mesh to other chips.", mend=mend)
    def program(folder, fields=fields):
        one_mesh(folder, **fields)

    program.__doc__ = f"A descriptor with {name}"

for name, fields in (("two hosts", {"hosts": "1, 2"}), ("a line", {"dims": "1, 8"}), ("a grid", {"dims": "4, 8"})):

    @right
    def program(folder, fields=fields):
        one_mesh(folder, **fields)

    program.__doc__ = f"A descriptor of {name}"


@mistake(
    Told.ERROR,
    "there is no such file",
    symptom="An error of the operating system.",
    mend="Look at the path, and at the folder the program was started in.",
)
def a_descriptor_that_is_not_there(folder):
    load_mesh_graph(folder / "none.textproto")


@mistake(
    Told.ERROR,
    "is not UTF-8",
    symptom="An error of the parser, without the file's name.",
    mend="Give a text file.",
)
def a_descriptor_that_is_no_text(folder):
    (folder / "mesh.textproto").write_bytes(bytes(range(128, 256)))
    load_mesh_graph(folder / "mesh.textproto")


def stranger(*calls):
    """A recorded program as somebody else may have written it, with checksums that are right."""
    return packed({"mesh": None, "calls": list(calls)}, [])


ZEROS = {"name": "zeros", "args": {"list": [{"list": [32, 32]}]}, "kwargs": {"dict": {}}, "made": [1]}


@mistake(
    Told.REMARK,
    "calls ttnn.dump_tensor, which takes a path or free text",
    symptom="The weights of another model are written over.",
    mend="Replay what you recorded yourself.",
)
def a_recorded_program_that_writes_a_file(folder):
    path = {"list": [str(folder / "weights.tensorbin"), {"tensor": 1}]}
    dump = {"name": "dump_tensor", "args": path, "kwargs": {"dict": {}}, "made": []}
    ttnn.LightMetalReplay.create(stranger(ZEROS, dump)).run()


@mistake(
    Told.ERROR,
    "LightMetalReplay: the table of calls cannot be read",
    symptom=RAW,
    mend="Record the program anew.",
)
def a_recorded_program_whose_calls_made_nothing_known():
    ttnn.LightMetalReplay.create(stranger({**ZEROS, "made": "1"}))


@right
def a_recorded_program_that_computes():
    read = {"name": "to_torch", "args": {"list": [{"tensor": 1}]}, "kwargs": {"dict": {}}, "made": []}
    assert ttnn.LightMetalReplay.create(stranger(ZEROS, read)).run()

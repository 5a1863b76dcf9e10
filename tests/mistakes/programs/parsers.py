"""Texts and descriptors: JSON, descriptors and bindings that do not say what was meant."""

from catalogue import Told, mistake, right

import softmesh as ttnn
from softmesh.fabric.descriptors.loader import load_mesh_graph

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

    program.__doc__ = f"A {kind.__name__} that is no such text"

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

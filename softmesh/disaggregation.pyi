# Written by `python -m softmesh.type_stubs`. Change the definitions, then write it anew.
# mypy: disable-error-code="overload-cannot-match, overload-overlap, assignment, no-redef"

from softmesh import *
from softmesh.ops.kv_cache.chunk_address_table import *

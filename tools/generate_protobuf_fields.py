"""Writes serving/embedded/apiserver/requests/kubernetes_protobuf.json: protobuf fields of the built-in kinds.

The fields are in the tags of the Go types: this needs check-outs of k8s.io/api and k8s.io/apimachinery, in
the version of the `kubernetes` client. Run it after `generate_builtin_schemas.py`:
`python tools/generate_protobuf_fields.py API APIMACHINERY`. A test compares the fields with builtin.json.

Each field is `"NUMBER": [NAME, TYPE]`. NAME is empty if the message's fields are inline in its parent's JSON.
TYPE is `string`, `int`, `bool`, `bytes`, `any` (the content is ignored: an empty object) or a message, after
`*` (a pointer: zero is a value), `[]` (a list) or `{}` (a map from strings).
"""

import json
import re
import sys
from pathlib import Path

APISERVER = Path(__file__).parent.parent / "serving" / "embedded" / "apiserver"
TARGET = APISERVER / "requests" / "kubernetes_protobuf.json"
OWN_DECODER = ("Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1")
"""Messages whose JSON has another form than their fields: kubernetes_protobuf.py has a decoder for each."""
IGNORED_CONTENT = frozenset(
    {
        "FieldSelectorAttributes",
        "LabelSelectorAttributes",
        "SelfSubjectReviewStatus",
        "SubjectAccessReviewStatus",
        "SubjectRulesReviewStatus",
    }
)
"""Messages whose content no answer of the API server depends on: their TYPE is `any`."""
_SCALARS = {
    "string": "string",
    "bool": "bool",
    "int": "int",
    "int32": "int",
    "int64": "int",
    "uint32": "int",
    "[]byte": "bytes",
    "types.UID": "string",
    "types.NodeName": "string",
}
_STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ALIAS = re.compile(r"^type (\w+) ([\w\[\].]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.\[\]*]+)\s+`(.*)`", re.MULTILINE)

Fields = dict[str, tuple[str, str]]
"""NAME and TYPE of each field of a message, by its number."""


class Types:
    """The structs and aliases of one Go package, by name, with those of the packages that it imports."""

    def __init__(self, text: str, imported: "Types | None" = None) -> None:
        """Parse the package's types.go."""
        self.structs = {**(imported.structs if imported else {}), **dict(_STRUCT.findall(text))}
        self.aliases = {**(imported.aliases if imported else {}), **dict(_ALIAS.findall(text))}

    def fields(self, name: str) -> Fields:
        """Return a struct's fields by number."""
        fields: Fields = {}
        for _, go_type, tags in _FIELD.findall(self.structs[name]):
            number = re.search(r'protobuf:"\w+,(\d+)', tags)
            if number is not None:
                json_name = re.search(r'json:"([^",]*)', tags)
                fields[number[1]] = (json_name[1] if json_name else "", self.type(go_type))
        return dict(sorted(fields.items(), key=lambda item: int(item[0])))

    def type(self, go_type: str) -> str:
        """Return TYPE for a Go type."""
        if go_type in _SCALARS:
            return _SCALARS[go_type]
        for go_prefix, prefix in ((r"\*", "*"), (r"\[\]", "[]"), (r"map\[[\w.]+\]", "{}")):
            if match := re.match(go_prefix, go_type):
                return prefix + self.type(go_type[match.end() :])
        bare = go_type.rsplit(".", 1)[-1]
        if bare in self.structs or bare in OWN_DECODER:
            return bare
        return self.type(self.aliases[bare]) if bare in self.aliases else "any"


def generate(api: Path, machinery: Path) -> str:
    """Return the file's text, from check-outs of k8s.io/api and k8s.io/apimachinery."""
    builtin = json.loads((APISERVER / "schema" / "builtin.json").read_text(encoding="utf-8"))
    meta = Types((machinery / "pkg/apis/meta/v1/types.go").read_text(encoding="utf-8"))
    core = Types((api / "core/v1/types.go").read_text(encoding="utf-8"), meta)
    roots = {"DeleteOptions": meta} | dict.fromkeys(
        ("Namespace", "Service", "Pod", "ConfigMap", "Secret", "Event"), core
    )
    for package, names in (
        ("apps", ["Deployment"]),
        ("batch", ["Job"]),
        ("discovery", ["EndpointSlice"]),
        ("coordination", ["Lease"]),
        ("authorization", ["SelfSubjectAccessReview", "SelfSubjectRulesReview"]),
        ("authentication", ["SelfSubjectReview"]),
    ):
        own = Types((api / package / "v1/types.go").read_text(encoding="utf-8"), core)
        roots |= dict.fromkeys(names, own)
    messages: dict[str, Fields] = {}
    known = frozenset(builtin["definitions"])
    for name, types in roots.items():
        _add(name, types, messages, known)
    return json.dumps(messages, separators=(",", ":"), sort_keys=True) + "\n"


def _add(name: str, types: Types, messages: dict[str, Fields], known: frozenset[str]) -> None:
    """Add a message, and those of its fields, to `messages`; `known` has the definitions of builtin.json."""
    fields = types.fields(name)
    for number, (field, type_) in fields.items():
        bare = type_.lstrip("*[]{}")
        if name == "VolumeSource" and bare not in known:
            # builtin.json has no definition of the volume sources that Slipway's node refuses.
            fields[number] = (field, "*any")
        elif bare in IGNORED_CONTENT:
            fields[number] = (field, type_.replace(bare, "any"))
    if name in messages:
        if messages[name] != fields:
            raise SystemExit(f"two different messages are named {name}")
        return
    messages[name] = fields
    for _, type_ in fields.values():
        bare = type_.lstrip("*[]{}")
        if bare in types.structs and bare not in OWN_DECODER:
            _add(bare, types, messages, known)


if __name__ == "__main__":
    TARGET.write_text(generate(Path(sys.argv[1]), Path(sys.argv[2])), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")

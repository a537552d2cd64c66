"""Writes serving/embedded/apiserver/requests/kubernetes_protobuf.json: protobuf fields of the built-in kinds.

The fields are in the tags of the Go types: this needs check-outs of k8s.io/api and k8s.io/apimachinery, in
the version of the `kubernetes` client. Run it after `generate_builtin_schemas.py`:
`python tools/generate_protobuf_fields.py API APIMACHINERY`. A test compares the fields with builtin.json.

Each field is `"NUMBER": [NAME, TYPE]`. NAME is empty if the message's fields are inline in its parent's JSON.
TYPE is `string`, `int`, `bool`, `bytes`, `any` (known by name alone) or a message, after `*` (a pointer: zero
is a value), `[]` (a list) or `{}` (a map from strings).
"""

import json
import re
import sys
from pathlib import Path

APISERVER = Path(__file__).parent.parent / "serving" / "embedded" / "apiserver"
TARGET = APISERVER / "requests" / "kubernetes_protobuf.json"
OWN_FORM = ("Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1")
"""Messages whose JSON is a scalar; the decoder knows them by name."""
KNOWN_BY_NAME = frozenset(
    {
        "FieldSelectorAttributes",
        "LabelSelectorAttributes",
        "SelfSubjectReviewStatus",
        "SubjectAccessReviewStatus",
        "SubjectRulesReviewStatus",
    }
)
"""Messages whose content no answer depends on."""
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


class Types:
    """The structs and aliases of one Go package, with those of the packages before it."""

    def __init__(self, text: str, before: "Types | None" = None) -> None:
        self.structs = {**(before.structs if before else {}), **dict(_STRUCT.findall(text))}
        self.aliases = {**(before.aliases if before else {}), **dict(_ALIAS.findall(text))}

    def fields(self, name: str) -> Fields:
        """Return a struct's fields by number."""
        fields: Fields = {}
        for _, go_type, tags in _FIELD.findall(self.structs[name]):
            number = re.search(r'protobuf:"\w+,(\d+)', tags)
            if number is not None:
                text = re.search(r'json:"([^",]*)', tags)
                fields[number[1]] = (text[1] if text else "", self.type(go_type))
        return dict(sorted(fields.items(), key=lambda item: int(item[0])))

    def type(self, go_type: str) -> str:
        """Return TYPE for a Go type."""
        if go_type in _SCALARS:
            return _SCALARS[go_type]
        for go_prefix, prefix in (("*", "*"), ("[]", "[]"), (r"map\[[\w.]+\]", "{}")):
            if match := re.match(go_prefix if prefix == "{}" else re.escape(go_prefix), go_type):
                return prefix + self.type(go_type[match.end() :])
        bare = go_type.rsplit(".", 1)[-1]
        if bare in self.structs or bare in OWN_FORM:
            return bare
        return self.type(self.aliases[bare]) if bare in self.aliases else "any"


def generate(api: Path, machinery: Path) -> str:
    """Return the file's text."""
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
    for name, types in roots.items():
        _add(name, types, messages, frozenset(builtin["definitions"]))
    return json.dumps(messages, separators=(",", ":"), sort_keys=True) + "\n"


def _add(name: str, types: Types, messages: dict[str, Fields], known: frozenset[str]) -> None:
    fields = types.fields(name)
    for number, (field, type_) in fields.items():
        bare = type_.lstrip("*[]{}")
        if name == "VolumeSource" and bare not in known:
            fields[number] = (field, "*any")
        elif bare in KNOWN_BY_NAME:
            fields[number] = (field, type_.replace(bare, "any"))
    if name in messages:
        if messages[name] != fields:
            raise SystemExit(f"two different messages are named {name}")
        return
    messages[name] = fields
    for _, type_ in fields.values():
        bare = type_.lstrip("*[]{}")
        if bare in types.structs and bare not in OWN_FORM:
            _add(bare, types, messages, known)


if __name__ == "__main__":
    TARGET.write_text(generate(Path(sys.argv[1]), Path(sys.argv[2])), encoding="utf-8")
    sys.stdout.write(f"wrote {TARGET}\n")

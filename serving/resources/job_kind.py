"""JobKindManifest: how the training jobs of a project end, and which Pod has the output, as data."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from serving.resources.base import NAME_PATTERN, Base, Manifest

Label = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        max_length=317,
    ),
]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]
TemplatePath = Annotated[str, Field(pattern=r"^spec(\.[A-Za-z][A-Za-z0-9]*)+$", max_length=253)]
StatusPath = Annotated[str, Field(pattern=r"^status(\.[A-Za-z][A-Za-z0-9]*)+$", max_length=253)]
Group = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
Word = Annotated[str, Field(min_length=1, max_length=253)]
KindName = Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=63)]
Plural = Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]
Version = Annotated[str, Field(pattern=r"^v[0-9]+((alpha|beta)[0-9]+)?$", max_length=63)]


class Sign(Base):
    """How a job's status shows an end: by a condition that is True, or by fields with certain values."""

    condition: Annotated[str, Field(max_length=316)] = ""
    """A type in `status.conditions`."""
    fields: dict[StatusPath, Annotated[list[Word], Field(min_length=1)]] = {}
    """Values by the path of the field, of which the field must have one: `status.phase: [Failed, Error]`."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.condition) == bool(self.fields):
            raise ValueError("exactly one of condition and fields must be set")
        return self


class JobPods(Base):
    """The Pods of a job, and the order in which its output is looked for in them."""

    label: Label
    """A label of the Pods. Its value is that of the job's field at the path `value`."""
    value: Annotated[str, Field(pattern=r"^(metadata\.name|status(\.[A-Za-z][A-Za-z0-9]*)+)$")] = (
        "metadata.name"
    )
    """Path of a field of the job: its name, or a field of its status."""
    labels: dict[Label, LabelValue] = {}
    """Further labels of the Pods."""
    first: list[dict[Label, LabelValue]] = []
    """Labels of preferred Pods, such as those of a master: each entry is one role, the best first."""
    owned: bool = True
    """Whether the job itself owns the Pods; false where they belong to objects that the job owns."""
    phases: Annotated[list[Literal["Running", "Succeeded"]], Field(min_length=1)] = ["Succeeded"]
    """Phases of Pods that may have the output of a job that has succeeded. Pods of some kinds are still
    `Running` then."""
    templates: list[TemplatePath] = []
    """Paths of the job's templates of these Pods, the best first. A template names the volume of the output
    after the Pods are deleted. A list on the path stands for each of its items."""


class JobKindManifest(Manifest):
    """Kinds of one API group that report their end in the same way."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]
    group: Group
    versions: Annotated[list[Version], Field(min_length=1, max_length=8)]
    """The versions that these rules are for, the preferred one first."""
    kinds: Annotated[dict[KindName, Plural], Field(min_length=1)]
    """Plural of each kind, as in URLs: `Workflow: workflows`."""
    succeeded: Annotated[list[Sign], Field(min_length=1)]
    """Signs of a success, each of which is sufficient. A job with a sign must never run again."""
    failed: Annotated[list[Sign], Field(min_length=1)]
    """Signs of a failure, each of which is sufficient. A job with a sign of both has failed."""
    pods: JobPods

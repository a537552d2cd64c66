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
    """What a status has at an end: a condition that is True, or fields that all have one of these values."""

    condition: Annotated[str, Field(max_length=316)] = ""
    """A type in `status.conditions`."""
    fields: dict[StatusPath, Annotated[list[Word], Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if bool(self.condition) == bool(self.fields):
            raise ValueError("exactly one of condition and fields must be set")
        return self


class JobPods(Base):
    """The Pods of a job, and the order in which its output is looked for in them."""

    label: Label
    """The label that has the job's name, or the value of another field."""
    value: Annotated[str, Field(pattern=r"^(metadata\.name|status(\.[A-Za-z][A-Za-z0-9]*)+)$")] = (
        "metadata.name"
    )
    """The field of the job with the value of that label."""
    labels: dict[Label, LabelValue] = {}
    """Further labels that they have."""
    first: list[dict[Label, LabelValue]] = []
    """Labels of Pods that are preferred, in this order, such as those of a master."""
    owned: bool = True
    """Whether the job itself is their owner; false where there are objects in between."""
    phases: Annotated[list[Literal["Running", "Succeeded"]], Field(min_length=1)] = ["Succeeded"]
    """Phases in which a Pod has its output once the job has succeeded: some servers run on."""
    templates: list[TemplatePath] = []
    """Fields of the job with templates of these Pods, the best first: they name the volume of the output once
    no Pod is left. A list on the way stands for each of its items."""


class JobKindManifest(Manifest):
    """Kinds of one API group that report their end in the same way."""

    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]
    group: Group
    versions: Annotated[list[Version], Field(min_length=1, max_length=8)]
    """The versions that these rules are for, the preferred one first."""
    kinds: Annotated[dict[KindName, Plural], Field(min_length=1)]
    """Plural by kind."""
    succeeded: Annotated[list[Sign], Field(min_length=1)]
    """Each sign is enough; the end must be final."""
    failed: Annotated[list[Sign], Field(min_length=1)]
    """The same; a job with a sign of both has failed."""
    pods: JobPods

"""What a ProfilingExperiment tunes."""

from typing import Annotated

from pydantic import Field

from serving.resources.base import Base, Name, rules
from serving.resources.inference import Framework, PredictorTemplate, Resources


class Target(Base):
    """What is tuned: a predictor of an Inference as it runs, or a ModelVersion."""

    model_config = {
        **Base.model_config,
        "json_schema_extra": rules(
            ("has(self.inference) != has(self.modelVersion)", "give either inference or modelVersion"),
            ("!has(self.modelVersion) || has(self.framework)", "a modelVersion needs a framework"),
            ("!has(self.predictor) || has(self.inference)", "predictor names one of an inference"),
            (
                "!has(self.framework) || has(self.modelVersion)",
                "framework goes with modelVersion; an inference has its own",
            ),
            (
                "!has(self.resources) || has(self.modelVersion)",
                "resources go with modelVersion; an inference's predictor has its own",
            ),
            (
                "!has(self.template) || has(self.modelVersion)",
                "template goes with modelVersion; an inference's predictor has its own",
            ),
            (
                (
                    "!has(self.framework) || self.framework != 'custom' || (has(self.template) && "
                    "has(self.template.containers) && self.template.containers.exists(c, c.name == 'predictor'))"
                ),
                "framework custom needs a container named predictor in the template",
            ),
        ),
    }
    inference: Name | None = None
    predictor: Annotated[
        Name | None, Field(description="Of the Inference; its only one where it has one.")
    ] = None
    model_version: Name | None = None
    framework: Framework | None = None
    resources: Annotated[
        Resources | None,
        Field(description="Of a replica, as in a predictor; what is tuned replaces it."),
    ] = None
    template: Annotated[
        PredictorTemplate | None,
        Field(description="What the Pods have besides the runtime, as in a predictor."),
    ] = None

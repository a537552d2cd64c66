"""The planners of Models, ModelVersions and Jobs with a model. Pure."""

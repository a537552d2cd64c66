"""What a Model, a ModelVersion and a Job with a model need next. Pure."""

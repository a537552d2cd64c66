"""kubectl's JSONPath, for the columns of tables and `-o jsonpath`: its syntax and its meaning. Pure."""

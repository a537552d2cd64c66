"""The controllers of Models, ModelVersions, and the jobs whose output becomes one."""

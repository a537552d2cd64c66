"""What bounds a need: schedules, stabilization windows and the pace of changes. Pure."""

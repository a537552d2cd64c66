"""The kinds: schema, defaults, validation, conditions, CRD export. Pure: no clock, no IO."""

"""Load forecasts: a mixture with conformal intervals. Pure: no clock, no IO."""

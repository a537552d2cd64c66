"""What load is to be expected: a mixture of forecasts with conformal intervals. Pure: no clock, no IO."""

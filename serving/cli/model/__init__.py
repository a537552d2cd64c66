"""`slipway model`: model versions, their images, and imports of files of other tools."""

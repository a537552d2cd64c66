"""Which groups, versions and kinds the server has, and their OpenAPI documents."""

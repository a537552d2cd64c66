"""What each built-in kind adds to its schema: defaults and rules, as kube-apiserver has them."""

"""A small character model of the shipped text, which `linnet serve` serves without a model; README.md has its recipe."""

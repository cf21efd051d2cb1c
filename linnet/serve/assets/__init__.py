"""A small character model of the shipped text, served by `linnet serve` without a model; README.md has its recipe."""

"""Steps of compiling a plan to rules: stores, probe trees, and the rules of each part."""

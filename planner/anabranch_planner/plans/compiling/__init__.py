"""Steps of compiling a plan to rules: queries, stores, probe trees, and the rules of each part."""

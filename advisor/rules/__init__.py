"""The rule book: its form and language, its lint, and the judge that holds it against measurements."""

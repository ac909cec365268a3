"""Linear scorers with a closed form or a solver: ridge, SVM, FastTag, kernel ridge."""

"""Linear scorers: SVM, FastTag, least squares."""

"""How accelerations follow from the equations of motion: Udwadia-Kalaba, Schur, singular mass matrices, hierarchies."""

"""How accelerations follow from the equations of motion, by which formula, and which inputs make a motion."""

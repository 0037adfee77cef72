"""Engine processes behind one front: what they say to each other, who gets which request, and what if one dies."""

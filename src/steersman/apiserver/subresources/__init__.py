"""What is answered without storing an object of its own: scale, binding and eviction of pods, access reviews."""

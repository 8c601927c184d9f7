"""Which linear maps obey a symmetry."""

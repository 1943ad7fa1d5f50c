"""Engine `hierarchy`: collectives composed from those of a topology's levels."""

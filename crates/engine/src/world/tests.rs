//! Laws of the world.

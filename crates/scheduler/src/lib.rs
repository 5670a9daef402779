//! Feeds the engine from watches and carries out its plans.

//! What a Volcano object must look like.

//! The bands of market pools: what a job says of its price, and all that it says. What a band is worth is bid elsewhere.

use serde::{Deserialize, Serialize};

/// A band of market pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PriceBand {
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    H,
}

impl PriceBand {
    /// All bands, from the first letter to the last.
    pub const ALL: [Self; 8] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F, Self::G, Self::H];

    /// The letter of the band, large, as annotations and bids have it.
    pub fn letter(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
            Self::G => "G",
            Self::H => "H",
        }
    }

    /// A band by its letter, large or small.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|band| text.eq_ignore_ascii_case(band.letter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_lead_back() {
        for band in PriceBand::ALL {
            assert_eq!(PriceBand::parse(band.letter()), Some(band));
            assert_eq!(PriceBand::parse(&band.letter().to_lowercase()), Some(band));
            assert_eq!(serde_json::to_value(band).unwrap(), band.letter(), "the log has the letter");
        }
        for text in ["", "AB", "I", "1"] {
            assert_eq!(PriceBand::parse(text), None, "{text:?}");
        }
    }
}

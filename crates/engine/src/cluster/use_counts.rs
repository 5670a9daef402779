//! How many pods with a place use something by its key: a volume claim, a device claim. Used by `storage` and `devices`.

use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(crate) struct Users(FxHashMap<String, u32>);

/// What a change of one user means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is used from now on.
    First,
    /// Nobody uses it any more.
    Last,
    /// It was used before and is still.
    Neither,
}

impl Users {
    pub(crate) fn get(&self, key: &str) -> u32 {
        self.0.get(key).copied().unwrap_or(0)
    }

    /// One user more (`sign` 1) or less (-1).
    pub(crate) fn count(&mut self, key: &str, sign: i32) -> Change {
        let users = self.0.entry(key.to_owned()).or_default();
        *users = users.checked_add_signed(sign).expect("users follow the tasks' places");
        match (*users, sign > 0) {
            (0, _) => {
                self.0.remove(key);
                Change::Last
            }
            (1, true) => Change::First,
            _ => Change::Neither,
        }
    }
}

crate::save::saved_inside!(Users);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_user_are_told() {
        let mut users = Users::default();
        let changes = [1, 1, -1, -1, 1].map(|sign| (users.count("claim", sign), users.get("claim")));
        let told =
            [(Change::First, 1), (Change::Neither, 2), (Change::Neither, 1), (Change::Last, 0), (Change::First, 1)];
        assert_eq!(changes, told);
    }
}

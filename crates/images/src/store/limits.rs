//! How much images may take: all bounds of the store in one struct.

/// Bounds of what a store takes in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a layer's tar, unpacked.
    pub layer_bytes_max: u64,
    /// Bytes of all layers of an image, unpacked.
    pub image_bytes_max: u64,
    /// Headers of a layer's tar: files, folders, links, and what describes them.
    pub entries_max: u64,
    /// Bytes of what describes one entry: long names and extended attributes.
    pub description_bytes_max: u64,
    /// Share of the disk, and of its inodes, that stays free.
    pub reserve_percent: u64,
    /// Most bytes of the disk that must stay free: a small share of a large disk is room enough.
    pub reserve_bytes_max: u64,
    /// How many times as large as its blob a layer may be, once it has more than a gigabyte.
    pub ratio_max: u64,
    /// Memory that decompression may look back on, as a power of two (Zstandard's window log).
    pub window_log_max: u32,
    /// Use of the disk above which images that no pod uses go.
    pub high_percent: u64,
    /// Use of the disk down to which they go.
    pub low_percent: u64,
}

/// Bytes that a layer may have however small its blob is.
const RATIO_FREE_BYTES: u64 = 1 << 30;

impl Limits {
    /// What a layer whose blob has so many bytes may have unpacked.
    pub(super) fn unpacked_max(&self, blob_bytes: u64) -> u64 {
        self.layer_bytes_max.min(blob_bytes.saturating_mul(self.ratio_max).max(RATIO_FREE_BYTES))
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            layer_bytes_max: 64 << 30,
            image_bytes_max: 256 << 30,
            entries_max: 4_000_000,
            description_bytes_max: 1 << 20,
            // What ends a node's pressure of the disk.
            reserve_percent: 7,
            reserve_bytes_max: 4 << 30,
            // Programs and texts are packed to a third or a tenth, and zeros to a thousandth.
            ratio_max: 200,
            // What `zstd -22 --ultra` needs, and what Zstandard's own programs take at most.
            window_log_max: 27,
            // As a kubelet.
            high_percent: 85,
            low_percent: 80,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_blob_does_not_make_a_large_layer() {
        let limits = Limits::default();
        for (blob, unpacked) in [(0, 1 << 30), (1 << 20, 1 << 30), (10 << 20, 2000 << 20), (u64::MAX, 64 << 30)] {
            assert_eq!(limits.unpacked_max(blob), unpacked, "{blob}");
        }
    }
}

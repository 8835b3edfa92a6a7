//! Reads a PNG file as a person's viewer would, as far as ours go.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

pub(super) type Rgb = [u8; 3];

#[derive(Debug)]
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    pixels: Vec<Rgb>,
}

impl Picture {
    pub(super) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n").unwrap();
        let (mut header, mut data) = (Vec::new(), Vec::new());
        loop {
            let length = number(&rest[..4]);
            let (kind, body) = (&rest[4..8], &rest[8..8 + length]);
            let mut sum = flate2::Crc::new();
            sum.update(&rest[4..8 + length]);
            let said = number(&rest[8 + length..12 + length]);
            assert_eq!(sum.sum() as usize, said, "{}", kind.escape_ascii());
            match kind {
                b"IHDR" => header.extend_from_slice(body),
                b"IDAT" => data.extend_from_slice(body),
                b"IEND" => break,
                other => panic!("a chunk {}", other.escape_ascii()),
            }
            rest = &rest[12 + length..];
        }
        assert_eq!(rest.len(), 12, "nothing follows the end");
        assert_eq!(header[8..], [8, 2, 0, 0, 0]);
        let (width, height) = (number(&header[..4]), number(&header[4..8]));
        let mut lines = Vec::new();
        let mut inflated = flate2::read::ZlibDecoder::new(data.as_slice());
        inflated.read_to_end(&mut lines).unwrap();
        assert_eq!(lines.len(), height * (1 + 3 * width));
        let mut pixels = Vec::new();
        for line in lines.chunks(1 + 3 * width) {
            assert_eq!(line[0], 0, "a line without a filter");
            pixels.extend(line[1..].as_chunks::<3>().0);
        }
        Self {
            width,
            height,
            pixels,
        }
    }

    pub(super) fn at(&self, x: usize, y: usize) -> Rgb {
        self.pixels[y * self.width + x]
    }

    /// How many pixels each colour has.
    pub(super) fn colours(&self) -> BTreeMap<Rgb, usize> {
        let mut colours = BTreeMap::new();
        for pixel in &self.pixels {
            *colours.entry(*pixel).or_default() += 1;
        }
        colours
    }
}

fn number(bytes: &[u8]) -> usize {
    u32::from_be_bytes(bytes.try_into().unwrap()) as usize
}

//! Writes a picture as PNG (ISO/IEC 15948): eight bits a channel, red, green
//! and blue, line by line, so that the whole picture is never held twice.

use std::io::{self, Write as _};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Eight bits, truecolour, the only compression and filter methods, whole.
const FORMAT: [u8; 5] = [8, 2, 0, 0, 0];
/// Before a line: its bytes are as they are.
const NO_FILTER: u8 = 0;

/// A picture that is being written.
#[derive(Debug)]
pub(crate) struct Png {
    size: (u16, u16),
    pixels: ZlibEncoder<Vec<u8>>,
}

impl Png {
    pub(crate) fn new(size: (u16, u16)) -> Self {
        let pixels = ZlibEncoder::new(Vec::new(), Compression::fast());
        Self { size, pixels }
    }

    /// The next line, three bytes a pixel.
    pub(crate) fn line(&mut self, rgb: &[u8]) -> io::Result<()> {
        self.pixels.write_all(&[NO_FILTER])?;
        self.pixels.write_all(rgb)
    }

    /// The whole file, after the last line.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        let (width, height) = self.size;
        let mut header = Vec::new();
        header.extend(u32::from(width).to_be_bytes());
        header.extend(u32::from(height).to_be_bytes());
        header.extend(FORMAT);
        let mut file = SIGNATURE.to_vec();
        chunk(&mut file, b"IHDR", &header)?;
        chunk(&mut file, b"IDAT", &self.pixels.finish()?)?;
        chunk(&mut file, b"IEND", &[])?;
        Ok(file)
    }
}

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut crc = Crc::new();
    crc.update(kind);
    crc.update(data);
    file.extend(length.to_be_bytes());
    file.extend(kind);
    file.extend(data);
    file.extend(crc.sum().to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_one_pixel_is_the_file_that_it_should_be() {
        let mut png = Png::new((1, 1));
        png.line(&[255, 0, 0]).unwrap();
        let file = png.finish().unwrap();
        assert!(
            file.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0")
        );
        // The two check sums that do not depend on the compression.
        assert_eq!(file.get(29..33), Some(b"\x90\x77\x53\xde".as_slice()));
        assert!(file.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
    }
}

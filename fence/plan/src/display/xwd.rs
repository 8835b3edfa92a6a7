//! The X server's window dump (`XWDFile.h` of the X protocol headers, version
//! 7), as it keeps its picture. The box can write into it, so every byte is
//! hostile: one layout is taken, the one that the server of [`super::server`]
//! writes for the size that was asked, and all else is an error. Nothing that
//! the file says is used as a length.

use std::fmt;

/// Bytes of the header's fixed part.
pub const HEADER: usize = 100;
/// Most bytes of the header with the name that follows it.
const MAX_HEADER: u32 = 1024;
/// Bytes of one entry of the colour map, which lies before the pixels.
const COLOUR: u32 = 12;
/// Most entries of the colour map.
const MAX_COLOURS: u32 = 256;
/// Bytes of a pixel in the file, and of one in the picture.
const PIXEL: u32 = 4;
const RGB: usize = 3;

/// What the fields have to say, in the file's order; the size and what is a
/// matter of the machine are looked at by themselves.
const FIELDS: [(usize, &str, u32); 11] = [
    (1, "version", 7),
    // ZPixmap: whole pixels, one after the other.
    (2, "format", 2),
    (3, "depth", 24),
    (6, "offset", 0),
    (8, "unit", 32),
    (10, "padding", 32),
    (11, "bits of a pixel", 32),
    // TrueColor: a pixel is a colour.
    (13, "visual", 4),
    (14, "red", 0x00ff_0000),
    (15, "green", 0x0000_ff00),
    (16, "blue", 0x0000_00ff),
];
const HEADER_SIZE: usize = 0;
const WIDTH: usize = 4;
const HEIGHT: usize = 5;
const BYTE_ORDER: usize = 7;
const LINE: usize = 12;
const COLOURS: usize = 19;

/// Why a file is no picture of this display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It ends before its header does.
    Short,
    /// A field of its header says something else than the server writes.
    Field(&'static str, u32),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("it ends early"),
            Self::Field(name, value) => write!(f, "its {name} is {value}"),
        }
    }
}

impl std::error::Error for Fault {}

/// How the pixels lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    width: u16,
    height: u16,
    /// Of the first pixel.
    at: u32,
    /// Whether the least significant byte comes first.
    little: bool,
}

impl Layout {
    /// Reads the first [`HEADER`] bytes of a file that should hold a picture of
    /// this size.
    ///
    /// # Errors
    /// When it holds anything else.
    pub fn read(bytes: &[u8], (width, height): (u16, u16)) -> Result<Self, Fault> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| {
            let word = words.get(at).ok_or(Fault::Short);
            word.map(|bytes| u32::from_be_bytes(*bytes))
        };
        // The last field first: what is short is short, whatever else it says.
        word(HEADER / 4 - 1)?;
        let size = [
            (WIDTH, "width", u32::from(width)),
            (HEIGHT, "height", u32::from(height)),
            (LINE, "line", u32::from(width) * PIXEL),
        ];
        for (at, name, wanted) in FIELDS.into_iter().chain(size) {
            let found = word(at)?;
            if found != wanted {
                return Err(Fault::Field(name, found));
            }
        }
        let order = word(BYTE_ORDER)?;
        if order > 1 {
            return Err(Fault::Field("byte order", order));
        }
        let (header, colours) = (word(HEADER_SIZE)?, word(COLOURS)?);
        let least = u32::try_from(HEADER).unwrap_or(MAX_HEADER);
        if !(least..=MAX_HEADER).contains(&header) {
            return Err(Fault::Field("header", header));
        }
        if colours > MAX_COLOURS {
            return Err(Fault::Field("colour map", colours));
        }
        Ok(Self {
            width,
            height,
            at: header + colours * COLOUR,
            little: order == 0,
        })
    }

    /// Where the first pixel is.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.at.into()
    }

    /// How many lines follow one another.
    #[must_use]
    pub fn lines(&self) -> u16 {
        self.height
    }

    /// Bytes of one line in the file.
    #[must_use]
    pub fn line(&self) -> usize {
        usize::from(self.width) * 4
    }

    /// One line as red, green and blue, a byte each.
    ///
    /// # Errors
    /// When it is not a whole line.
    pub fn rgb(&self, line: &[u8]) -> Result<Vec<u8>, Fault> {
        if line.len() != self.line() {
            return Err(Fault::Short);
        }
        let mut rgb = Vec::with_capacity(usize::from(self.width) * RGB);
        let (pixels, _) = line.as_chunks::<4>();
        for &[a, b, c, d] in pixels {
            rgb.extend(if self.little { [c, b, a] } else { [b, c, d] });
        }
        Ok(rgb)
    }
}

/// Bears any bytes, and takes of them one layout only.
pub fn target(bytes: &[u8]) {
    let (size, file) = bytes.split_at_checked(4).unwrap_or((&[1, 0, 1, 0], bytes));
    let side = |at: usize| {
        let two = size.get(at..at + 2).and_then(|two| two.try_into().ok());
        u16::from_le_bytes(two.unwrap_or([1, 0]))
    };
    let size = (side(0) % 64, side(2) % 64);
    let Ok(layout) = Layout::read(file, size) else {
        return;
    };
    assert!(layout.at() <= u64::from(MAX_HEADER + MAX_COLOURS * COLOUR));
    assert_eq!(layout.lines(), size.1);
    let from = usize::try_from(layout.at()).unwrap_or(usize::MAX);
    let mut rest = file.get(from..).unwrap_or_default();
    for _ in 0..layout.lines() {
        let Some((line, after)) = rest.split_at_checked(layout.line()) else {
            assert_eq!(layout.rgb(rest), Err(Fault::Short));
            return;
        };
        let rgb = layout.rgb(line).map(|rgb| rgb.len());
        assert_eq!(rgb, Ok(usize::from(size.0) * RGB));
        rest = after;
    }
}

/// A file as the server writes it, of one colour, for tests.
#[must_use]
pub fn example((width, height): (u16, u16), [red, green, blue]: [u8; 3]) -> Vec<u8> {
    let mut words = [0_u32; HEADER / 4];
    let name = b"Xvfb box:0.0\0\0\0\0";
    let header = u32::try_from(HEADER + name.len()).unwrap_or_default();
    let size = [
        (HEADER_SIZE, header),
        (WIDTH, width.into()),
        (HEIGHT, height.into()),
        (LINE, u32::from(width) * PIXEL),
        (COLOURS, 2),
    ];
    let fields = FIELDS.into_iter().map(|(at, _, value)| (at, value));
    for (at, value) in fields.chain(size) {
        if let Some(word) = words.get_mut(at) {
            *word = value;
        }
    }
    let mut file: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    file.extend_from_slice(name);
    file.extend([0; 2 * 12]);
    for _ in 0..u32::from(width) * u32::from(height) {
        file.extend([blue, green, red, 0]);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: (u16, u16) = (5, 3);

    fn file() -> Vec<u8> {
        example(SIZE, [1, 2, 3])
    }

    fn with(at: usize, value: u32) -> Vec<u8> {
        let mut file = file();
        file[at * 4..at * 4 + 4].copy_from_slice(&value.to_be_bytes());
        file
    }

    #[test]
    fn a_line_is_red_green_and_blue() {
        let file = file();
        let layout = Layout::read(&file, SIZE).unwrap();
        assert_eq!((layout.lines(), layout.line()), (3, 20));
        let from = usize::try_from(layout.at()).unwrap();
        assert_eq!(file.len(), from + 3 * layout.line());
        let line = &file[from..from + layout.line()];
        assert_eq!(layout.rgb(line).unwrap(), [1, 2, 3].repeat(5));
        let big = Layout::read(&with(BYTE_ORDER, 1), SIZE).unwrap();
        assert_eq!(big.rgb(line).unwrap(), [2, 1, 0].repeat(5));
        assert_eq!(layout.rgb(&line[1..]), Err(Fault::Short));
    }

    #[test]
    fn a_header_that_says_anything_else_is_no_picture() {
        for at in (0..HEADER / 4).filter(|at| ![9, 17, 18, 20, 21, 22, 23, 24].contains(at)) {
            let file = with(at, u32::MAX);
            assert!(
                matches!(Layout::read(&file, SIZE), Err(Fault::Field(_, u32::MAX))),
                "{at}"
            );
        }
        assert_eq!(
            Layout::read(&with(WIDTH, 6), SIZE),
            Err(Fault::Field("width", 6))
        );
        assert_eq!(
            Layout::read(&file(), (5, 4)),
            Err(Fault::Field("height", 3))
        );
        assert_eq!(
            Layout::read(&with(HEADER_SIZE, 99), SIZE),
            Err(Fault::Field("header", 99))
        );
        assert_eq!(
            Layout::read(&with(COLOURS, 257), SIZE),
            Err(Fault::Field("colour map", 257))
        );
    }

    #[test]
    fn a_header_that_is_cut_off_is_no_picture() {
        for length in 0..HEADER {
            assert_eq!(Layout::read(&file()[..length], SIZE), Err(Fault::Short));
        }
    }

    #[test]
    fn any_bytes_are_borne() {
        for length in 0..file().len() {
            let mut input = vec![5, 0, 3, 0];
            input.extend_from_slice(&file()[..length]);
            target(&input);
            target(&input[..length.min(4)]);
        }
    }
}

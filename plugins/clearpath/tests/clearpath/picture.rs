//! A PDF as a reader shows it.

use std::io::Write;
use std::process::{Command, Stdio};

/// Its first page, with a pixel for every point of the paper.
pub(crate) struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Draws a PDF; none, and a word about it, without `TEST_PDFTOPPM`.
    pub(crate) fn of(pdf: &[u8]) -> Option<Self> {
        let Ok(program) = std::env::var("TEST_PDFTOPPM") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_PDFTOPPM is not set, and CI skips nothing");
            eprintln!("skipped: TEST_PDFTOPPM is not set");
            return None;
        };
        let mut draws = Command::new(program);
        draws.args(["-r", "72", "-singlefile", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut drawing = draws.spawn().unwrap();
        drawing.stdin.take().unwrap().write_all(pdf).unwrap();
        let drawn = drawing.wait_with_output().unwrap();
        assert!(drawn.status.success(), "{}", drawn.status);
        Some(Self::read(&drawn.stdout))
    }

    /// Reads a PPM: four words of a head, with one blank behind each, and three bytes for every pixel.
    fn read(ppm: &[u8]) -> Self {
        let mut parts = ppm.splitn(5, |byte| byte.is_ascii_whitespace());
        let head = [(); 4].map(|()| String::from_utf8(parts.next().unwrap().to_vec()).unwrap());
        assert_eq!((head[0].as_str(), head[3].as_str()), ("P6", "255"));
        let [width, height] = [&head[1], &head[2]].map(|word| word.parse().unwrap());
        let pixels: Vec<_> =
            parts.next().unwrap().chunks_exact(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        assert_eq!(pixels.len(), width * height);
        Self { width, height, pixels }
    }

    pub(crate) fn size(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    /// Every pixel with its place on the paper, from the left and from below.
    pub(crate) fn pixels(&self) -> impl Iterator<Item = ((f64, f64), [u8; 3])> {
        let place = |n: usize| ((n % self.width) as f64, (self.height - n / self.width) as f64);
        self.pixels.iter().enumerate().map(move |(n, pixel)| (place(n), *pixel))
    }
}

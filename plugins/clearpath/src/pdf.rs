//! The certificate as a PDF: one page, and EXPIRED across it when it has.

use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, Str};

/// What a certificate says.
pub(crate) struct Page<'a> {
    pub(crate) number: &'a str,
    pub(crate) name: &'a str,
    pub(crate) order: &'a str,
    /// In becquerels per cubic metre.
    pub(crate) radon_level: f64,
    pub(crate) issued_on: &'a str,
    pub(crate) valid_until: &'a str,
    pub(crate) is_expired: bool,
}

const WIDTH: f32 = 612.0;
const HEIGHT: f32 = 792.0;
const REGULAR: Name<'_> = Name(b"F1");
const BOLD: Name<'_> = Name(b"F2");

/// The bytes of the file.
pub(crate) fn write(page: &Page<'_>) -> Vec<u8> {
    let [catalog, pages, leaf, regular, bold, content, info] = [1, 2, 3, 4, 5, 6, 7].map(Ref::new);
    let mut pdf = Pdf::new();
    pdf.catalog(catalog).pages(pages);
    pdf.pages(pages).kids([leaf]).count(1);
    let mut told = pdf.page(leaf);
    told.media_box(Rect::new(0.0, 0.0, WIDTH, HEIGHT)).parent(pages).contents(content);
    told.resources().fonts().pair(REGULAR, regular).pair(BOLD, bold);
    told.finish();
    // Every reader has these two.
    for (id, name) in [(regular, b"Helvetica".as_slice()), (bold, b"Helvetica-Bold")] {
        pdf.type1_font(id).base_font(Name(name)).encoding_predefined(Name(b"WinAnsiEncoding"));
    }
    pdf.stream(content, &draw(page));
    let title = format!("Radon test certificate {}", page.number);
    pdf.document_info(info).title(pdf_writer::TextStr(&title));
    pdf.finish()
}

fn draw(page: &Page<'_>) -> Vec<u8> {
    let mut content = Content::new();
    if page.is_expired {
        watermark(&mut content);
    }
    content.set_line_width(2.0).set_stroke_rgb(0.1, 0.3, 0.45);
    content.rect(36.0, 36.0, WIDTH - 72.0, HEIGHT - 72.0).stroke();
    text(&mut content, BOLD, 28.0, (72.0, 690.0), "Radon Test Certificate");
    text(&mut content, REGULAR, 12.0, (72.0, 666.0), "ClearPath RD");
    let level = format!("{} Bq/m³", page.radon_level);
    let lines = [
        ("Certificate", page.number),
        ("Issued to", page.name),
        ("Order", page.order),
        ("Average radon level", &level),
        ("Issued on", page.issued_on),
        ("Valid until", page.valid_until),
    ];
    for ((label, value), line) in lines.into_iter().zip(0_u8..) {
        let y = 600.0 - 36.0 * f32::from(line);
        text(&mut content, BOLD, 12.0, (72.0, y), label);
        text(&mut content, REGULAR, 12.0, (230.0, y), value);
    }
    content.finish().to_vec()
}

/// EXPIRED, large, red and slanted, beneath everything else: what the certificate says can still be read.
fn watermark(content: &mut Content) {
    let (sine, cosine) = 45_f32.to_radians().sin_cos();
    content.save_state().set_fill_rgb(0.96, 0.68, 0.68).begin_text().set_font(BOLD, 110.0);
    content.set_text_matrix([cosine, sine, -sine, cosine, 140.0, 200.0]);
    content.show(Str(b"EXPIRED")).end_text().restore_state();
}

fn text(content: &mut Content, font: Name<'_>, size: f32, (x, y): (f32, f32), said: &str) {
    content.begin_text().set_font(font, size).next_line(x, y).show(Str(&latin(said))).end_text();
}

/// The text as the fonts have it; what they do not have is a question mark.
fn latin(said: &str) -> Vec<u8> {
    let byte = |c: char| match c {
        ' '..='~' | '\u{a0}'..='\u{ff}' => u8::try_from(u32::from(c)).unwrap_or(b'?'),
        '€' => 0x80,
        '‘' => 0x91,
        '’' => 0x92,
        '“' => 0x93,
        '”' => 0x94,
        '–' => 0x96,
        '—' => 0x97,
        _ => b'?',
    };
    said.chars().take(70).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_the_fonts_do_not_have_are_question_marks() {
        assert_eq!(latin("Zoë – 中 m³"), [b'Z', b'o', 0xeb, b' ', 0x96, b' ', b'?', b' ', b'm', 0xb3]);
    }

    #[test]
    fn only_an_expired_certificate_says_so() {
        let page = |is_expired| Page {
            number: "CP-1",
            name: "Ada (née Byron) \\",
            order: "CP-17",
            radon_level: 120.5,
            issued_on: "2026-01-16",
            valid_until: "2028-01-16",
            is_expired,
        };
        let says = |is_expired| String::from_utf8_lossy(&write(&page(is_expired))).contains("(EXPIRED)");
        assert!(says(true) && !says(false));
    }
}

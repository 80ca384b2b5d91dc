//! The part of HTTP/1.1 that scrapers and probes need: one request without a body, one reply, and
//! the connection ends. The input can be any bytes, and only a bounded number of them is kept.

use crate::report::dashboard::POLICY;

/// Maximum length of a request line with its headers.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 * 1024;

/// Result of parsing the input so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// More input is needed.
    Incomplete,
    /// Not HTTP, or too long; has the status of the reply.
    Bad(u16),
    /// A request for `path`; the reply has no body if `head`.
    Get { path: &'a str, head: bool },
}

/// Parses `input`, which is everything that has arrived so far.
pub(crate) fn parse(input: &[u8]) -> Request<'_> {
    let ends = |mark: &[u8]| input.windows(mark.len()).any(|window| window == mark);
    if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
        return match input.len() {
            length if length >= REQUEST_BYTES_MAX => Request::Bad(431),
            _ => Request::Incomplete,
        };
    }
    let line = input.split(|byte| *byte == b'\n').next();
    let Ok(line) = std::str::from_utf8(line.unwrap_or_default()) else {
        return Request::Bad(400);
    };
    let mut words = line.trim_end_matches('\r').split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version)) = (method, target, version) else {
        return Request::Bad(400);
    };
    if words.next().is_some() || !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Request::Bad(400);
    }
    let path = target.split('?').next().unwrap_or(target);
    match method {
        "GET" => Request::Get { path, head: false },
        "HEAD" => Request::Get { path, head: true },
        _ => Request::Bad(405),
    }
}

/// Returns the bytes of a reply.
pub(crate) fn reply(status: u16, kind: &str, body: &str, head: bool) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    };
    let allow = match status {
        405 => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    let policy = match kind.starts_with("text/html") {
        true => format!("Content-Security-Policy: {POLICY}\r\nReferrer-Policy: no-referrer\r\n"),
        false => String::new(),
    };
    let mut bytes = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}{policy}\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .into_bytes();
    if !head {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any bytes are a request, the beginning of one, or an error with its status.
    #[test]
    fn requests_are_read_whatever_comes() {
        let get = |path, head| Request::Get { path, head };
        let long = [b'x'; REQUEST_BYTES_MAX];
        let cases: &[(&[u8], Request<'_>)] = &[
            (b"", Request::Incomplete),
            (b"GET / HTTP/1.1\r\nHost: a\r\n", Request::Incomplete),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", get("/", false)),
            (b"GET /metrics?a=b HTTP/1.0\n\n", get("/metrics", false)),
            (b"HEAD /healthz HTTP/1.1\r\n\r\n", get("/healthz", true)),
            (b"POST / HTTP/1.1\r\n\r\n", Request::Bad(405)),
            (b"GET / HTTP/2\r\n\r\n", Request::Bad(400)),
            (b"GET http://a/ HTTP/1.1\r\n\r\n", Request::Bad(400)),
            (b"GET / x HTTP/1.1\r\n\r\n", Request::Bad(400)),
            (b"\xff\xfe\r\n\r\n", Request::Bad(400)),
            (b"\r\n\r\n", Request::Bad(400)),
            (&long, Request::Bad(431)),
        ];
        for (input, expected) in cases {
            assert_eq!(parse(input), *expected, "{}", input.escape_ascii());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_input_is_too_strange(input: Vec<u8>) {
            let _ = parse(&input);
        }
    }
}

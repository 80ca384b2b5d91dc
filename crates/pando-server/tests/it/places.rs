//! Commands of places on the earth.

use crate::fixture::Fixture;

const SICILY: &str = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

#[test]
fn places_are_added_and_looked_up() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (SICILY, ":2"),
        ("GEOADD g NX CH 1 1 Palermo", ":0"),
        ("GEOADD g XX 1 1 Rome", ":0"),
        ("ZSCORE g Palermo", "\"3479099956230698\""),
        ("GEODIST g Palermo Catania", "\"166274.1516\""),
        ("GEODIST g Palermo Catania KM", "\"166.2742\""),
        ("GEODIST g Palermo Catania mi", "\"103.3182\""),
        ("GEODIST g Palermo Palermo", "\"0.0000\""),
        ("GEODIST g Palermo Rome", "nil"),
        (
            "GEODIST g Palermo Catania x",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        ("GEODIST g Palermo Catania m x", "-ERR syntax error"),
        ("GEOHASH g Palermo Rome", "[\"sqc8b49rny0\" nil]"),
        (
            "GEOPOS g Palermo Rome",
            "[[\"13.36138933897018433\" \"38.11555639549629859\"] nil]",
        ),
        ("GEOPOS none a", "[nil]"),
        ("GEOHASH g", "[]"),
        (
            "GEOADD g 200 100 x",
            "-ERR invalid longitude,latitude pair 200.000000,100.000000",
        ),
        ("GEOADD g x 1 a", "-ERR value is not a valid float"),
        ("GEOADD g NX XX 1 1 a", "-ERR syntax error"),
        ("GEOADD g 1 1 a 1 1", "-ERR syntax error"),
        ("SET s v", "+OK"),
        (
            "GEOPOS s a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ]);
}

#[test]
fn places_are_searched() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (SICILY, ":2"),
        (
            "GEOADD g 12.758489 38.788135 edge1 17.24151 38.788135 edge2",
            ":2",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC",
            "[\"Catania\" \"Palermo\"]",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHDIST",
            "[[\"Catania\" \"56.4413\"] [\"Palermo\" \"190.4424\"] [\"edge2\" \"279.7403\"] \
             [\"edge1\" \"279.7405\"]]",
        ),
        (
            "GEOSEARCH g FROMMEMBER Palermo BYRADIUS 200 km DESC COUNT 1 WITHHASH",
            "[[\"Catania\" :3479447370796909]]",
        ),
        ("GEOSEARCH none FROMMEMBER x BYRADIUS 1 m", "[]"),
        (
            "GEOSEARCH g FROMMEMBER x BYRADIUS 1 m",
            "-ERR could not decode requested zset member",
        ),
        (
            "GEOSEARCH g BYRADIUS 1 m ASC WITHDIST",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 ASC WITHDIST",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m ANY",
            "-ERR the ANY argument requires COUNT argument",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS -1 m",
            "-ERR radius cannot be negative",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m COUNT 0",
            "-ERR COUNT must be > 0",
        ),
        ("SET dst v EX 100", "+OK"),
        (
            "GEOSEARCHSTORE dst g FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST",
            ":2",
        ),
        ("TTL dst", ":-1"),
        ("ZRANGE dst 0 -1", "[\"Catania\" \"Palermo\"]"),
        (
            "GEOSEARCHSTORE dst g FROMLONLAT 15 37 BYRADIUS 200 km WITHDIST",
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("GEORADIUS g 15 37 200 km ASC", "[\"Catania\" \"Palermo\"]"),
        ("GEORADIUS g 15 37 200 km STORE dst", ":2"),
        ("GEODIST dst Palermo Catania", "\"166274.1516\""),
        ("GEORADIUS_RO g 15 37 200 km STORE dst", "-ERR syntax error"),
        ("GEORADIUSBYMEMBER_RO g Palermo 1 m", "[\"Palermo\"]"),
        ("GEORADIUSBYMEMBER none Palermo 1 m STORE dst", ":0"),
        ("EXISTS dst", ":0"),
    ]);
}

#[test]
fn of_several_members_the_last_one_is_the_center() {
    let server = Fixture::new();
    let mut client = server.client();
    client.check(&[
        (SICILY, ":2"),
        (
            "GEOSEARCH g FROMMEMBER Catania FROMMEMBER Palermo BYRADIUS 1 m",
            "[\"Palermo\"]",
        ),
        (
            "GEOSEARCH g FROMMEMBER x FROMMEMBER Palermo BYRADIUS 1 m WHAT",
            "-ERR could not decode requested zset member",
        ),
        (
            "GEOSEARCH g FROMMEMBER Palermo FROMLONLAT 15 37 BYRADIUS 1 m",
            "-ERR syntax error",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 FROMMEMBER Palermo BYRADIUS 1 m",
            "-ERR syntax error",
        ),
    ]);
}

//! The geographic hierarchy: which grouping a country belongs to, and which states exist.
//!
//! The groupings are those of Traffic Manager, not a GeoIP file's continents: the Middle East stands by
//! itself, Mexico, Central America and the Caribbean are in `GEO-NA`, Cyprus and all of Russia in
//! `GEO-EU`, the Caucasus and Kazakhstan in `GEO-AS`, Egypt in `GEO-AF`. Countries are those of
//! ISO 3166-1, with the user-assigned `XK` (Kosovo) that geo databases use.

use std::fmt;

use crate::model::GeoCode;

/// Africa.
const AFRICA: &str = "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY \
    MA MG ML MR MU MW MZ NA NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA ZM ZW";
/// Antarctica and the islands around it.
const ANTARCTICA: &str = "AQ BV GS HM TF";
/// Australia and the Pacific.
const PACIFIC: &str = "AS AU CC CK CX FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TO TV UM VU WF WS";
/// Asia without the Middle East.
const ASIA: &str = "AF AM AZ BD BN BT CN GE HK ID IN IO JP KG KH KP KR KZ LA LK MM MN MO MV MY NP PH PK SG \
    TH TJ TL TM TW UZ VN";
/// Europe.
const EUROPE: &str = "AD AL AT AX BA BE BG BY CH CY CZ DE DK EE ES FI FO FR GB GG GI GR HR HU IE IM IS IT JE \
    LI LT LU LV MC MD ME MK MT NL NO PL PT RO RS RU SE SI SJ SK SM UA VA XK";
/// The Middle East.
const MIDDLE_EAST: &str = "AE BH IL IQ IR JO KW LB OM PS QA SA SY TR YE";
/// North and Central America and the Caribbean.
const NORTH_AMERICA: &str = "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ \
    MS MX NI PA PM PR SV SX TC TT US VC VG VI";
/// South America.
const SOUTH_AMERICA: &str = "AR BO BR CL CO EC FK GF GY PE PY SR UY VE";

/// The eight groupings, by their two letters, with their countries.
const GROUPINGS: [([u8; 2], &str); 8] = [
    (*b"AF", AFRICA),
    (*b"AN", ANTARCTICA),
    (*b"AP", PACIFIC),
    (*b"AS", ASIA),
    (*b"EU", EUROPE),
    (*b"ME", MIDDLE_EAST),
    (*b"NA", NORTH_AMERICA),
    (*b"SA", SOUTH_AMERICA),
];

/// Countries whose states are told apart, with these (ISO 3166-2).
const STATES: [([u8; 2], &str); 3] = [
    (*b"AU", "ACT NSW NT QLD SA TAS VIC WA"),
    (*b"CA", "AB BC MB NB NL NS NT NU ON PE QC SK YT"),
    (
        *b"US",
        "AK AL AR AZ CA CO CT DC DE FL GA HI IA ID IL IN KS KY LA MA MD ME MI MN MO MS MT NC ND NE NH NJ NM \
         NV NY OH OK OR PA RI SC SD TN TX UT VA VT WA WI WV WY",
    ),
];

/// Why a text is not a geographic code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CodeError {
    /// Neither `WORLD`, `GEO-XX`, `XX` nor `XX-YYY` in capitals.
    Malformed(String),
    /// `GEO-` and no grouping.
    UnknownGrouping(String),
    /// Two letters that no country has.
    UnknownCountry(String),
    /// A state, but not of AU, CA or US.
    NoStates(String),
    /// A state that its country does not have.
    UnknownState {
        /// The code as found.
        code: String,
        /// The states there are, as in `ACT NSW …`.
        allowed: &'static str,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(code) => write!(
                f,
                "{code:?} is not a geographic code; allowed are WORLD, a grouping (GEO-EU), a country (IE) \
                 or a state (US-CA), in capitals"
            ),
            Self::UnknownGrouping(code) => {
                write!(f, "{code:?} is not a grouping; allowed are")?;
                for (letters, _) in GROUPINGS {
                    write!(f, " {}", GeoCode::Grouping(letters))?;
                }
                Ok(())
            }
            Self::UnknownCountry(code) => {
                write!(f, "{code:?} is not a country of ISO 3166-1 (two letters, as in IE)")
            }
            Self::NoStates(code) => {
                write!(f, "{code:?}: states are told apart only in AU, CA and US")
            }
            Self::UnknownState { code, allowed } => {
                write!(f, "{code:?} is not a state or province of its country; allowed are {allowed}")
            }
        }
    }
}

impl std::error::Error for CodeError {}

/// The grouping of a country (ISO 3166-1 alpha-2, capitals); `None` when there is no such country.
pub fn grouping_of(country: [u8; 2]) -> Option<GeoCode> {
    GROUPINGS
        .iter()
        .find(|(_, countries)| countries.split_ascii_whitespace().any(|each| each.as_bytes() == country))
        .map(|&(letters, _)| GeoCode::Grouping(letters))
}

/// The states that are told apart in a country; `None` for all but AU, CA and US.
pub fn states_of(country: [u8; 2]) -> Option<&'static str> {
    STATES.iter().find(|(each, _)| *each == country).map(|&(_, states)| states)
}

/// Whether this is a state that is told apart. The state is padded with zero.
pub fn is_state(country: [u8; 2], state: [u8; 3]) -> bool {
    states_of(country)
        .is_some_and(|states| states.split_ascii_whitespace().any(|each| pad(each.as_bytes()) == Some(state)))
}

/// Reads `WORLD`, `GEO-EU`, `IE` or `US-CA`, and checks it against the table.
pub fn parse_code(text: &str) -> Result<GeoCode, CodeError> {
    if text == "WORLD" {
        return Ok(GeoCode::World);
    }
    let malformed = || CodeError::Malformed(text.to_owned());
    if !text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-') {
        return Err(malformed());
    }
    if let Some(letters) = text.strip_prefix("GEO-") {
        let unknown = || CodeError::UnknownGrouping(text.to_owned());
        let letters: [u8; 2] = letters.as_bytes().try_into().map_err(|_| unknown())?;
        return GROUPINGS
            .iter()
            .any(|(each, _)| *each == letters)
            .then_some(GeoCode::Grouping(letters))
            .ok_or_else(unknown);
    }
    let (country, state) = match text.split_once('-') {
        Some((country, state)) => (country, Some(state)),
        None => (text, None),
    };
    let country: [u8; 2] = country.as_bytes().try_into().map_err(|_| malformed())?;
    if grouping_of(country).is_none() {
        return Err(CodeError::UnknownCountry(text.to_owned()));
    }
    let Some(state) = state else {
        return Ok(GeoCode::Country(country));
    };
    let allowed = states_of(country).ok_or_else(|| CodeError::NoStates(text.to_owned()))?;
    let unknown = || CodeError::UnknownState { code: text.to_owned(), allowed };
    let state = pad(state.as_bytes()).ok_or_else(unknown)?;
    if is_state(country, state) { Ok(GeoCode::State(country, state)) } else { Err(unknown()) }
}

/// One to three octets, padded with zero.
fn pad(state: &[u8]) -> Option<[u8; 3]> {
    if state.is_empty() {
        return None;
    }
    let mut padded = [0; 3];
    padded.get_mut(..state.len())?.copy_from_slice(state);
    Some(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_country_is_in_one_grouping() {
        let mut all: Vec<&str> =
            GROUPINGS.iter().flat_map(|(_, countries)| countries.split_ascii_whitespace()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "a country is listed twice");
        assert_eq!(count, 249 + 1, "ISO 3166-1 has 249 countries; XK is the one more");
        assert!(all.iter().all(|country| country.len() == 2));
    }

    #[test]
    fn the_groupings_are_not_continents() {
        for (country, grouping) in [
            ("TR", "GEO-ME"),
            ("IL", "GEO-ME"),
            ("IR", "GEO-ME"),
            ("EG", "GEO-AF"),
            ("RU", "GEO-EU"),
            ("CY", "GEO-EU"),
            ("KZ", "GEO-AS"),
            ("GE", "GEO-AS"),
            ("AM", "GEO-AS"),
            ("AZ", "GEO-AS"),
            ("MX", "GEO-NA"),
            ("PA", "GEO-NA"),
            ("CU", "GEO-NA"),
            ("NZ", "GEO-AP"),
            ("BR", "GEO-SA"),
            ("AQ", "GEO-AN"),
        ] {
            let country: [u8; 2] = country.as_bytes().try_into().unwrap();
            assert_eq!(grouping_of(country).unwrap().to_string(), grouping);
        }
        assert_eq!(grouping_of(*b"ZZ"), None);
    }

    #[test]
    fn codes_and_back() {
        for text in ["WORLD", "GEO-EU", "GEO-AN", "IE", "US-CA", "CA-AB", "AU-NSW", "AU-SA"] {
            assert_eq!(parse_code(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_and_says_what_is_allowed() {
        for (text, allowed) in [
            ("", "WORLD"),
            ("ie", "capitals"),
            ("Ireland", "capitals"),
            ("GEO-XX", "GEO-SA"),
            ("GEO-EUR", "GEO-EU"),
            ("ZZ", "ISO 3166-1"),
            ("DE-BY", "AU, CA and US"),
            ("US-XX", "NY"),
            ("US-", "NY"),
            ("AU-NSWX", "NSW"),
        ] {
            let error = parse_code(text).unwrap_err().to_string();
            assert!(error.contains(allowed), "{text}: {error}");
        }
    }
}

#![no_main]
rapidbyte_fuzz::target!(rapidbyte_fuzz::mongo::run);

#![no_main]
rapidbyte_fuzz::target!(rapidbyte_fuzz::bson::run);

//! bailey-fence-plan

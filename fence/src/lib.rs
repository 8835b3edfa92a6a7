//! bailey-fence

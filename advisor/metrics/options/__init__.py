"""What the job uses already, as the recording shows it: conditions of fixes."""

"""The desired children, pure: pods and their replacement, Services, hardware, and everything an executor owns."""
